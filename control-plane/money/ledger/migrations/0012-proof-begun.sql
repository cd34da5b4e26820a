-- A full proof that was interrupted begins again. Without this, the next proof took all transfers for new ones.
alter table ledger_proof add column whole_begun_ms INTEGER;
