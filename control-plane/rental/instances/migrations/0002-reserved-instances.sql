-- The contract that a reserved instance runs under.
alter table instances add column reservation_id TEXT;

create index instances_of_reservation on instances (reservation_id) where reservation_id is not null;
