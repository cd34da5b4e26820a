-- What a supplier already has must not make its next machine dearer.
alter table suppliers add column machine_count INTEGER not null default 0;
update suppliers set machine_count = (select count(*) from machines where machines.supplier_id = suppliers.id);

create index machines_awaited on machines (supplier_id) where public_key is null;
create unique index machines_by_key on machines (public_key) where public_key is not null;
create index enrollment_tokens_by_machine on enrollment_tokens (machine_id);
