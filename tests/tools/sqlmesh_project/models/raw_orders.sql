MODEL (
  name shop.raw_orders,
  kind SEED (path '../seeds/raw_orders.csv'),
  columns (id INT, customer STRING, amount DOUBLE, day DATE)
);
