MODEL (name shop.order_history, kind SCD_TYPE_2_BY_COLUMN (unique_key id, columns [customer, amount]));

SELECT id, customer, amount FROM shop.raw_orders
