// The fields, values, paths, codes, events and numbers of each section of the interface specification. Each word stands in a rule of that section
// above a test (`// Specification <section>: <rule>.`) or in what is not built yet, so that nothing is silently absent.

/** Section -> words, each of which a rule of the section names. */
export const OUTLINE: Readonly<Record<string, string>> = {
  '1': 'economy serverless token image second fine-tuning JSON',
  '2.1': 'data next_cursor cursor limit 50 200 null ISO UTC Unix Idempotency-Key 255',
  '2.2':
    'id status gpu_type gpu_count region tier price_per_hour created_at name ready_at terminated_at disk_gb image reservation_id ' +
    'auto_terminate_hours auto_terminate_at status_reason last_reachable_at unreachable_since connection hostname port ssh_command ' +
    'app_url terminal_url app_user app_password include=credentials allocating starting running stopping stopped terminated unreachable ' +
    'error booting spot on_demand reserved digest credited',
  '2.3':
    'gpu_type vram_gb architecture cpu_cores ram_gb storage_gb instance_disk_gb disk_configurable unreported pricing nameplate',
  '2.4':
    'gpu_type region tier price_per_hour available offering_id disk_price_per_gb_hour storage_gb disk_configurable spot',
  '2.5': 'id name fingerprint created_at SHA256',
  '2.6':
    'operation_id kind state resource_id created_at updated_at completed_at error.code error.detail instance.create pending in_progress ' +
    'succeeded failed cancelled Operation-Id not_found UUID',
  '2.7':
    'reservation_id title starts_at ends_at status renewal.mode auto_renew manual none days_until_end expiring_soon 14 commitment gpu_type ' +
    'gpu_count region utilization allocated committed instances instance_id hostname pending active suspended expired cancelled ULID Commercial',
  '2.8': 'bucket_start gpu_type instance_id gpu_seconds cost_cents',
  '2.9': 'id url secret 64 event_types enabled created_at history',
  '2.10':
    'id object owned_by modality status pricing currency input_per_1m_tokens_cents output_per_1m_tokens_cents per_image_cents ' +
    'per_image_microcents per_mpxl_microcents per_video_microcents per_video_second_cents per_video_second_microcents aliases author category ' +
    'context_length created fine_tunable fine_tune_base_model parameters supported_parameters list data',
  '2.11':
    'role content system user assistant id object created model choices usage index message finish_reason length content_filter tool_calls',
  '2.12': 'created data b64_json usage image_count',
  '2.13':
    'id object model status progress seconds cost_cents created_at completed_at expires_at queued in_progress completed failed cancelled expired',
  '2.14': 'object embedding index data model prompt_tokens total_tokens',
  '2.15':
    'FineTuningJob fine_tuning.job training_file result_files fine_tuned_model finished_at metadata method seed suffix FineTuningJobEvent level ' +
    'has_more FileObject bytes filename purpose',
  '2.16': 'frameworks versions includes vm_images label variant default name version',
  '2.17':
    'supplier_id org_id status created_at updated_at machine_id verification_status unverified verified failed gpu_count gpu_type region ' +
    'price_per_hour vram_per_gpu_gb last_heartbeat_at tier enrollment_token draining delisted accrued_cents unpaid_cents entries ledger_id ' +
    'instance_id amount_cents accrued_at paid',
  '2.18': 'deposit_id chain asset amount_usd_cents pay_address pay_amount expires_at tx_hash credited_cents',
  '3.1':
    'allocating starting running error terminated unreachable stopping stopped unreachable_since ready_at status_reason limit credited grace',
  '3.2': 'pending in_progress succeeded failed cancelled completed_at terminal resource_id',
  '3.3': 'queued in_progress completed failed cancelled expired cost_cents 24 410 unbilled unchanged',
  '3.4':
    'validating Reservation pending active suspended expired cancelled supplier pending_verification listed delisted draining dead_lettered ' +
    'credited_underpaid held_screening',
  '4': 'JSON',
  '4.1': '/v1/gpu-types /v1/pricing cursor limit authentication',
  '4.2': 'GET POST DELETE Idempotency-Key name public_key not_found 201',
  '4.3':
    'GET POST PATCH DELETE Idempotency-Key Operation-Id 202 include=credentials gpu_type gpu_count tier ssh_key_ids region name offering_id ' +
    'max_price_per_hour viewed_price_per_hour price_changed template_id user_overridable environment certified raw_vm provider_template image ' +
    'amd64 digest cmd entrypoint env SVC_ PUBLIC_KEY ports primary 22 registry_credential_id disk_gb auto_terminate_hours spot reserved ' +
    'model_too_large min_vram_gb warning rescue',
  '4.4': '/v1/reservations array checkout reserved',
  '4.5': '/v1/operations/{id} not_found 30',
  '4.6': 'bucket hour day week month group_by instance_id gpu_type start end cursor limit 30',
  '4.7': 'POST GET DELETE Idempotency-Key url event_types 201 secret deliveries',
  '4.8':
    '/v1/models modality /v1/models/{id} /v1/chat/completions /v1/images/generations POST /v1/videos /v1/videos/{id} /content cancel ' +
    '/v1/embeddings stream stream_options temperature max_tokens [DONE] n size response_format b64_json prompt seconds input 2048 ' +
    'encoding_format float dimensions user cent fine_tuning/jobs max_budget_usd',
  '4.9': '/v1/environments /v1/registry-credentials PATCH DELETE',
  '5':
    'Bearer svc_live_ serverless:read serverless:write billing:read full_access ssh_keys instances billing webhooks org_mismatch Basic app_user ' +
    '403 401 /v1/gpu-types /v1/pricing command-line',
  '6.1': 'instance.creating instance.running instance.terminated instance.failed spot',
  '6.2': 'Svc-Signature Svc-Event-Id Content-Type data.instance 2xx 10 30',
  '6.3': 't= v1= HMAC-SHA256 300 400',
  '6.4': '5 30 dead_lettered hand 24 history',
  '6.5': '[DONE] fine-tuning',
  '7.1': 'envelope application/problem+json Retry-After 429 503',
  '7.2':
    'reservation/no_contract contract_inactive gpu_type_mismatch no_capacity org_mismatch not_found validation_failed disk_unavailable ' +
    'disk_exceeds_offering environment_unavailable image_unavailable model_too_large gpu_vram_too_small registry_unreachable price_changed ' +
    'operation_failed 400 422 502',
  '7.3':
    'unsupported_parameter invalid_request_error model_not_found expired stream_limit_exceeded rate_limit_exceeded upstream_unavailable 504 ' +
    'upstream_response_too_large upstream_error 401 402 403 422 500 request_too_large',
  '8': '200 255 gpu_count auto_terminate_hours 720 disk_gb 1000 ports entrypoint 0.01 2048 64 cent 24 14 10 minutes 5 30 Economy',
  '9': '/v1 v1.1 spot coming_soon deprecated',
};

/** Section -> what nobody can use yet, in our words. Each entry names the words of the outline that it covers. */
export const NOT_BUILT: Readonly<Record<string, readonly string[]>> = {
  '2.17': ['verification_status verified: no check yet makes a machine verified, so it is unverified or failed'],
  '6.1': ['instance.terminated by an end-of-spot preemption: there is no spot capacity that could be taken back'],
};
