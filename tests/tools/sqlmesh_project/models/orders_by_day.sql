MODEL (
  name shop.orders_by_day,
  kind INCREMENTAL_BY_TIME_RANGE (time_column day),
  partitioned_by (day),
  audits (not_null(columns := (customer)), unique_values(columns := (id)))
);

SELECT id, customer, amount, day FROM shop.raw_orders WHERE day BETWEEN @start_date AND @end_date
