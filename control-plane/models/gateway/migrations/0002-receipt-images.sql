-- What is counted of a request that is not charged by the token.
alter table request_receipts add column images INTEGER;
