MODEL (name shop.customers, kind VIEW);

SELECT DISTINCT customer FROM shop.orders_by_day
