{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id',
          on_schema_change='append_new_columns') }}
select id, customer, state, amount {% if var('with_day', false) %}, day {% endif %} from {{ ref('raw_orders') }}
