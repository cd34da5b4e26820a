-- Transfers of deposits, of which there are few, for their hourly proof.
create index transfers_of_deposits on transfers (subject_id, kind, amount_ucents) where substr(kind, 1, 8) = 'deposit.';
