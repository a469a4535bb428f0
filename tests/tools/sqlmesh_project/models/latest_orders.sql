MODEL (name shop.latest_orders, kind INCREMENTAL_BY_UNIQUE_KEY (unique_key customer));

SELECT customer, MAX(day) AS last_day, CAST(COUNT(*) AS INT) AS orders FROM shop.orders_by_day GROUP BY customer
