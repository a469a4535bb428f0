{{ config(materialized='view') }}
select * from {{ ref('orders') }} where state = 'paid'
