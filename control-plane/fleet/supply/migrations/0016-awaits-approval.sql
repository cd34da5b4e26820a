-- Since when the host shows GPUs or a driver that the operator has not approved; null while it does not.
alter table machines add column awaits_approval_ms INTEGER;
update machines set awaits_approval_ms = updated_ms where inventory_fault is not null;
create index machines_awaiting_approval on machines (awaits_approval_ms, id) where awaits_approval_ms is not null and status = 'listed';
