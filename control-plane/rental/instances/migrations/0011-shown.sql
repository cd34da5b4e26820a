-- What the API shows of `request` and `launch`. Both may have hundreds of KiB, so a list must not read them.
alter table instances add column shown TEXT not null default '{"image":null,"ports":[],"auto_terminate_hours":null}';

-- only sqlite
update instances set shown = json_object(
  'image', case when json_extract(launch, '$.own_image') then json_extract(launch, '$.image') end,
  'ports', json(json_extract(launch, '$.ports')),
  'auto_terminate_hours', json_extract(request, '$.auto_terminate_hours'));
-- end
-- only postgres
update instances set shown = json_build_object(
  'image', case when launch::json ->> 'own_image' = 'true' then launch::json ->> 'image' end,
  'ports', launch::json -> 'ports',
  'auto_terminate_hours', request::json -> 'auto_terminate_hours')::text;
-- end
