-- An operator asks what runs, or ran, on a machine.
create index instances_of_machine on instances (machine_id, created_ms) where machine_id is not null;
