-- The reservation contract that has a GPU set aside: its launches alone may hold it.
alter table machine_gpus add column reserved_by TEXT;

create index machine_gpus_by_reservation on machine_gpus (reserved_by) where reserved_by is not null;
