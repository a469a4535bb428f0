{{ config(materialized='table', persist_docs={'relation': true, 'columns': true}) }}
select state, count(*) as orders, sum(amount) as amount from {{ ref('orders') }} group by state
