-- The operator's word, which outlives a supplier's taking the machine out of supply and back.
alter table machines add column approved INTEGER not null default 0;
update machines set approved = 1 where status = 'listed';
-- What speaks against the machine being what was declared, or why nobody can tell; null while nothing does.
alter table machines add column verification_detail TEXT;
