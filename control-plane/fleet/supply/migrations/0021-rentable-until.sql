-- The time until which the supplier offers a machine; null if it has set none. `offer_ended` is set once the time has come.
alter table machines add column rentable_until_ms INTEGER;
alter table machines add column offer_ended INTEGER not null default 0;
create index machines_leaving on machines (rentable_until_ms, id) where rentable_until_ms is not null and offer_ended = 0;

-- The same time, beside what placement reads. Its indexes hold it, so that a choice still reads no row.
alter table offerings add column rentable_until_ms INTEGER;
drop index offerings_by_price;
drop index offerings_by_region;
drop index offerings_with_free;
create index offerings_by_price on offerings (gpu_type, tier, gpu_free, price_ucents_per_hour, id, machine_id, region, disk_configurable, disk_free_gb, rentable_until_ms) where listed = 1;
create index offerings_by_region on offerings (gpu_type, tier, region, gpu_free, price_ucents_per_hour, id, machine_id, disk_configurable, disk_free_gb, rentable_until_ms) where listed = 1;
create index offerings_with_free on offerings (gpu_type, tier, price_ucents_per_hour, gpu_free, id, machine_id, region, disk_configurable, disk_free_gb, rentable_until_ms)
where listed = 1 and gpu_free > 0;

-- The end of the contract that needs the GPUs; null: it is renewed. A need from before the upgrade counts as one of those.
alter table slot_wants add column ends_ms INTEGER;
