MODEL (name shop.totals, kind FULL, description 'What customers have ordered');

SELECT customer, SUM(amount) AS total FROM shop.orders_by_day GROUP BY customer
