-- Machines that the operator trusts with the requests of other customers and with training data: replicas of models and training run there.
alter table machines add column trusted INTEGER not null default 0;

create index machines_trusted on machines (id) where trusted = 1;
