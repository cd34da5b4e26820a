-- When the GPUs of the contract were set aside, or began to be as they come free. Null before the lead time.
alter table reservations add column claimed_ms INTEGER;

-- Until now, a contract had all of its GPUs from the moment it was made.
update reservations set claimed_ms = created_ms;
