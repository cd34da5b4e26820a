-- How many transfers are in the proven sums. The next proof sums all of them again, so that the number is right from then on.
alter table ledger_proof add column transfers INTEGER not null default 0;
delete from proven_accounts;
delete from proven_wallet_kinds;
update ledger_proof set posted_ms = 0, transfer_id = '';
