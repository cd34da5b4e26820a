-- The block up to which an account that is behind will be read. Null: the account is not behind. `before_tx` belongs to a read up to this block.
alter table deposit_accounts add column behind_to INTEGER;
-- Why the node could not answer about a transaction: in the read that `before_tx` belongs to, or in the last one. Null: it has answered so far.
alter table deposit_accounts add column failure TEXT;
-- 1 if any read since the account fell behind had such a transaction.
alter table deposit_accounts add column has_failed INTEGER not null default 0;
-- A read that was interrupted begins again, because nobody knows the block up to which it was meant.
update deposit_accounts set before_tx = null;
create index deposit_accounts_behind on deposit_accounts (chain, owner) where behind_to is not null;
