-- The lowest threshold that the customer was warned about, in hours until the balance ends. Null: the balance is enough.
alter table instances add column balance_below_hours INTEGER;
