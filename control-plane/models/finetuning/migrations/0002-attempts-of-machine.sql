-- A supplier asks what a machine earned.
create index finetuning_attempts_of_machine on finetuning_attempts (machine_id, job_id);
