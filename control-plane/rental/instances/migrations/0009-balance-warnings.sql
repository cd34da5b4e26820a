-- The customer was warned that the balance ends in less than so many hours. Null: the balance is enough.
alter table instances add column balance_below_hours INTEGER;
