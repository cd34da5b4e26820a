// Every limit on what strangers can send or cause, with its reason.

/** Specification 2.1: list endpoints. */
export const PAGE_DEFAULT = 50;
export const PAGE_MAX = 200;
/** Specification 8: length of an Idempotency-Key. */
export const IDEMPOTENCY_KEY_CHARS_MAX = 255;
/** Idempotency keys per API key within the replay window, each a row with its answer: more than two per second, all day. */
export const IDEMPOTENCY_KEYS_PER_API_KEY_MAX = 200_000;
/** How long an equal request waits for the first one before it gets 409. */
export const IDEMPOTENCY_WAIT_MS = 2_000;
/** The promised replay window. */
export const IDEMPOTENCY_KEEP_MS = 24 * 3_600_000;
/** Size of a body. The largest allowed request, which creates an instance with 32 arguments and an environment, is smaller. */
export const BODY_BYTES_MAX = 256 * 1024;
/** Names and values of one JSON text. The longest conversation has 21,000; the worst text of this size is parsed in less than 20 ms. */
export const JSON_VALUES_MAX = 24_000;
/** Names and values of a registry's answer: the longest manifests have some hundred. */
export const REGISTRY_JSON_VALUES_MAX = 8_000;
/** The longest manifests and image configurations have some 100 KiB. */
export const REGISTRY_JSON_BYTES_MAX = 1024 * 1024;
/** Command and variables of a launch as JSON. The largest body fits; a template, which may repeat a value, gets no more. */
export const LAUNCH_BYTES_MAX = 256 * 1024;
/** Path, query and headers together. */
export const HEADER_BYTES_MAX = 16 * 1024;
/** Size up to which headers are read. Larger headers are read only in part, so the refusal may not know the path. */
export const HEADER_BYTES_READ_MAX = 64 * 1024;
/** Valid API keys per organisation: far more than people and machines need, and still a list that a person can read. */
export const API_KEYS_PER_ORG_MAX = 200;
/** Sign-ups from one network before it must wait an hour: a class or an office signs up at once, and a network that goes on is no such thing. */
export const SIGN_UPS_PER_NETWORK_MAX = 30;
/** Open invitations of an organisation: a list that a person can still read. */
export const INVITATIONS_PER_ORG_MAX = 100;
/** Invitations of an organisation that are mailed in a day: as many as may be open. The others have to send their links themselves. */
export const INVITATION_MAILS_PER_ORG_MAX = 100;
/** Invitations that one address gets by mail in a day, from all organisations: one is enough, and two may have been lost. */
export const INVITATION_MAILS_PER_ADDRESS_MAX = 3;
/** Mails that one process sends at once: mail servers allow few connections of one sender. */
export const MAILS_AT_ONCE_MAX = 4;
/**
 * Number of SSH keys of an organisation. One link message may contain all of them, so they must fit into it with 3 KiB for the largest
 * kind.
 */
export const SSH_KEYS_PER_ORG_MAX = 250;
/** Changes of a supplier's payout destination in any day: a person corrects itself a few times. Each leaves a row, events and a warning. */
export const DESTINATION_CHANGES_PER_DAY_MAX = 10;
/** Far more registries than an organisation uses, and a list that a person can still read. */
export const REGISTRY_CREDENTIALS_PER_ORG_MAX = 100;
/** The longest logins are key files of cloud providers, below 4 KiB. */
export const REGISTRY_PASSWORD_CHARS_MAX = 8 * 1024;
/** Docker's limit for a name, and as much again for registry, tag and digest. */
export const IMAGE_REFERENCE_CHARS_MAX = 512;
/** Number of webhook endpoints of an organisation. Each event is sent to every endpoint that subscribes to it. */
export const WEBHOOK_ENDPOINTS_PER_ORG_MAX = 50;
/** Specification 6.2 and 8: time until the status line, and for the whole attempt with DNS, TLS and body. */
export const WEBHOOK_STATUS_MS_MAX = 10_000;
export const WEBHOOK_ATTEMPT_MS_MAX = 30_000;
/** Excerpt of an answer's body; the rest is not read. */
export const WEBHOOK_EXCERPT_BYTES_MAX = 1024;
/** Attempts per delivery, including manual retries: the API returns the whole history. */
export const WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX = 50;
/** Attempts of each delivery that a list shows. Only a delivery that was retried by hand has more. */
export const WEBHOOK_ATTEMPTS_LISTED_MAX = 10;
/** Tests of an organisation in an hour. */
export const WEBHOOK_TESTS_PER_HOUR_MAX = 60;

/** Specification 8: instance create. */
export const GPU_COUNT_MAX = 8;
export const AUTO_TERMINATE_HOURS_MAX = 720;
export const PORTS_MAX = 10;
/** Streams of GET /v1/events that are open at once in one process. */
export const EVENT_STREAMS_PER_KEY_MAX = 10;
export const EVENT_STREAMS_PER_ADDRESS_MAX = 100;

/**
 * New images of Docker Hub that an organisation may name without a login. Docker Hub allows an address a hundred reads in six hours, which all
 * organisations share.
 */
export const IMAGE_READS_BURST = 20;
export const IMAGE_READS_PER_HOUR = 6;

export const DISK_GB_MIN = 10;
export const DISK_GB_MAX = 1_000;
/** Every instance has this disk size without extra charge. */
export const DISK_GB_INCLUDED = 100;
/** Memory that a host keeps for itself, its engine, the agent and its holders. Instances share the rest by their GPUs. */
export const HOST_RAM_GB = 1;
/**
 * Rows that placement ranks. Transactions run one after another, so the best row is almost always taken. The others are for rare
 * misses, and each one costs time in every launch.
 */
export const CANDIDATES_MAX = 16;
/** GPUs of one machine. A report of more GPUs is refused. */
export const GPUS_PER_MACHINE_MAX = 16;
/** Machines per supplier that have not enrolled yet: far more than anybody installs at once. */
export const MACHINES_AWAITED_MAX = 1_000;
/** Machines per supplier, including delisted ones: a data centre has fewer. */
export const MACHINES_PER_SUPPLIER_MAX = 10_000;
/** Workloads in a host's desired state, including those in quarantine. A host that has this number gets no new ones. */
export const WORKLOADS_PER_MACHINE_MAX = 256;

/** The longest usage window in days, by bucket size: at most about 1,500 buckets, and at most twenty years. */
export const USAGE_DAYS_MAX = { hour: 62, day: 1_100, week: 7_305, month: 7_305 };
/** Pages of usage that one organisation may read at the same time: each may sum up all of its rentals. Further reads wait for a short time. */
export const USAGE_READS_PER_ORG_MAX = 2;
/**
 * Bills that one organisation may read at the same time, and as many statements: each may have a line for each rental. Others wait for a short
 * time.
 */
export const BILLS_PER_ORG_MAX = 1;

/** Specification 2.17: enrolment tokens are shown once and are valid for a day. */
export const ENROLLMENT_TOKEN_MS = 24 * 3_600_000;

/** Maximum time in a state that must pass by itself. Then the next state follows (DESIGN section 4.2). */
export const STARTING_MS_MAX = 25 * 60_000;
export const STOPPING_MS_MAX = 5 * 60_000;

/** A slower or longer pull is ended, because it keeps GPUs from others and nobody pays for them. */
export const PULL_BYTES_PER_SECOND_MIN = 1024 ** 2;
export const PULL_MS_MAX = 20 * 60_000;

/**
 * Time from the start of a container until its guest must have connected. The guest needs a second; if it takes longer, the image
 * prevents it.
 */
export const GUEST_SILENT_MS_MAX = 2 * 60_000;

/**
 * The control plane ends a rental at its runtime limit. A host without a link ends it by itself, this much later, so that small clock
 * differences cause no race between the two.
 */
export const AUTO_TERMINATE_GRACE_MS = 30_000;
/** An unreachable rental, or one with a broken GPU, ends after this time. The time is not charged. */
export const GRACE_MS = 30 * 60_000;

/** A larger message from a host closes its link. The report on 256 workloads is smaller. */
export const LINK_MESSAGE_BYTES_MAX = 1024 * 1024;
/** Names and values of a message from a host: twice those of the report on 256 workloads. */
export const LINK_MESSAGE_VALUES_MAX = 20_000;
/** Size of the first message, whose sender is not authenticated yet: the largest inventory takes a tenth. */
export const LINK_HELLO_BYTES_MAX = 64 * 1024;
/** Bytes of unauthenticated first messages per address: as a burst, and per second after that. */
export const LINK_UNPROVEN_BYTES_BURST = 32 * LINK_HELLO_BYTES_MAX;
export const LINK_UNPROVEN_BYTES_PER_SECOND = 2 * LINK_HELLO_BYTES_MAX;
/** Bytes of messages that are read from one host: as a burst, and per second after that. An honest host sends some KiB per minute. */
export const LINK_READ_BYTES_BURST = 16 * LINK_MESSAGE_BYTES_MAX;
export const LINK_READ_BYTES_PER_SECOND = 1024 * 1024;
/**
 * Messages that are read from one host: as a burst, and per second after that. A host with 256 workloads sends some 260 when it connects, and then
 * one per second while somebody watches its figures, or some more for jobs.
 */
export const LINK_READ_MESSAGES_BURST = 1_024;
export const LINK_READ_MESSAGES_PER_SECOND = 20;
/** How often one host may link: as a burst, and per second after that. An honest host waits half a second at least, and soon some seconds. */
export const LINK_HELLOS_BURST = 60;
export const LINK_HELLOS_PER_SECOND = 2;
/** Size of a desired state: the largest possible launch on each GPU, plus one link message for the rest. */
export const LINK_DESIRED_BYTES_MAX = LINK_MESSAGE_BYTES_MAX + GPUS_PER_MACHINE_MAX * LAUNCH_BYTES_MAX;
/** Unread bytes sent to a host. Above this its link is ended, and the host gets its state again after it has reconnected. */
export const LINK_UNSENT_BYTES_MAX = 8 * 1024 * 1024;
/** Unread bytes sent to a host, above which it is sent no more lists of SSH keys: far fewer, so that strangers cannot end its link. */
export const LINK_BEHIND_BYTES = 1024 * 1024;
export const LINK_PING_MS = 10_000;
/** Time in which a ping must be answered. Later it counts as missed, and the instances on the host are probed. */
export const LINK_PONG_MS_MAX = 4_000;
/** Three missed pings: the peer is gone even if TCP has not noticed. */
export const LINK_SILENCE_MS_MAX = 35_000;
/** Period of new clone tokens. A copy of a host's disk that is older than this is detected when it links. */
export const CLONE_TOKEN_MS = 60_000;
export const LINK_RECONNECT_MS_MIN = 500;
export const LINK_RECONNECT_MS_MAX = 15_000;
/** Time in which an agent must have authenticated itself. */
export const LINK_HELLO_MS_MAX = 10_000;

/** Time between two samples of a host's figures: normally, and while somebody looks at them. */
export const METRICS_PERIOD_MS = 10_000;
export const METRICS_WATCHED_PERIOD_MS = 1_000;
/** After a read of live figures, somebody counts as looking at them for this time. */
export const METRICS_WATCH_MS = 30_000;
/** Figures are stored as one row per minute, for a week. */
export const METRICS_MINUTE_MS = 60_000;
export const METRICS_KEEP_MS = 7 * 24 * 3_600_000;
/** Points of one series in an answer: a day by minutes. */
export const METRICS_POINTS_MAX = 1_440;
/** Figures older than this are not the live ones: two minutes and the time to store them. */
export const METRICS_STALE_MS = 150_000;
/** Metrics that one organisation may read at the same time: each sums up as much as a week of minutes. Further reads wait for a short time. */
export const METRICS_READS_PER_ORG_MAX = 4;
/** Instances, and as many machines, in one Prometheus scrape. */
export const METRICS_SCRAPED_MAX = 1_000;
/** Prometheus scrapes of one organisation at the same time: each makes a text of up to some 30 MB. Further scrapes wait for a short time. */
export const METRICS_SCRAPES_PER_ORG_MAX = 1;

/** A holder must dial a requested stream within this time. */
export const STREAM_DIAL_MS_MAX = 10_000;
/** After both directions of a stream have ended, its connection has this long to close. */
export const STREAM_CLOSE_MS_MAX = 10_000;

/** Period of TCP keep-alive on idle connections: a host without power closes nothing. */
export const TCP_KEEP_ALIVE_MS = 60_000;

/** Guards of the SSH server: without them, strangers could exhaust its memory or sockets. */
export const SSH_LOGIN_GRACE_MS = 20_000;
export const SSH_UNAUTHENTICATED_MAX = 10;
/** How long a caller waits for a free place among the connections that have not logged in yet. */
export const SSH_QUEUE_MS_MAX = 10_000;
/** After this time without a login, a connection may lose its place to a waiting caller. An honest client on a slow line needs less. */
export const SSH_LOGIN_FAIR_MS = 5_000;
/** A connection older than this has logged in, because the holder has ended all others. */
export const SSH_LOGIN_MS_MAX = SSH_QUEUE_MS_MAX + SSH_LOGIN_GRACE_MS + 5_000;
/** Probes at the same time: one, and an older one that is being replaced. */
export const SSH_PROBES_MAX = 2;
export const SSH_AUTH_TRIES_MAX = 3;
/** Offers of keys without a signature. An ssh-agent may offer many keys before the right one, and each costs a comparison. */
export const SSH_KEY_OFFERS_MAX = 30;
/** Logins at the same time from one address, so that a caller who never logs in cannot keep all others waiting. */
export const SSH_UNAUTHENTICATED_PER_ADDRESS_MAX = 5;
/** Unread answer bytes of one connection. Above this, nothing more is read from its client. */
export const SSH_UNSENT_BYTES_HIGH = 2 * 1024 * 1024;
/** Buffered bytes of all connections of one holder, in both directions. Above this, the connection with the most is cut. */
export const SSH_BUFFERED_BYTES_MAX = 128 * 1024 ** 2;
export const SSH_CHANNELS_MAX = 64;
export const SSH_CONNECTIONS_MAX = 128;
/** Connections of one address to one public port of an instance, so that one address cannot use all of them. */
export const PORT_CONNECTIONS_PER_ADDRESS_MAX = 64;

/** Number of connections from one address to the API, and the same number to applications. An office full of browsers needs fewer. */
export const HTTP_CONNECTIONS_PER_ADDRESS_MAX = 1_024;

/** After a client has sent its EOF and left, a slow program may still read the last bytes for this time. */
export const SESSION_LINGER_MS = 30_000;

/** Lines of a container's log in one answer; the engine keeps 30 MB of it. */
export const LOG_LINES_DEFAULT = 100;
export const LOG_LINES_MAX = 1_000;
/** A host sends all lines in less than a second. A host that never ends its answer must not keep a request open. */
export const LOG_READ_MS_MAX = 30_000;
/** Characters of the lines in one answer: a thousand lines of 4 KiB. If a log has longer ones, the oldest are left out. */
export const LOG_READ_CHARS_MAX = 4 * 1024 * 1024;
/** Logs that one organisation may read at the same time: each is in memory until it is whole. Further reads wait for a short time. */
export const LOG_READS_PER_ORG_MAX = 4;
/** Logs that one organisation may follow at the same time: each takes a connection here and one on the host. */
export const LOG_FOLLOWERS_PER_ORG_MAX = 20;

/**
 * Frames per second that a holder reads from its container. A small frame costs about ten microseconds, and honest ones carry
 * kilobytes. A JSON message counts as ten, because it is validated.
 */
export const GUEST_FRAMES_PER_SECOND_MAX = 20_000;
/** Bytes per second that a holder reads from its container: more than any network of a rental carries. */
export const GUEST_BYTES_PER_SECOND_MAX = 1024 ** 3;

/** Connections to the ports of one instance, from browsers and all others together. */
export const TCP_CONNECTIONS_MAX = 512;

/** The body of a request to a model: a million tokens of English. Parsing more would block everyone else for more than 20 ms. */
export const INFERENCE_BODY_BYTES_MAX = 4 * 1024 * 1024;
/** Messages per conversation. For each, the template adds some tokens to its text. */
export const CHAT_MESSAGES_MAX = 2_048;
/** Names and values in an answer of a model server that has no vectors and no tokens: some hundred. */
export const UPSTREAM_JSON_VALUES_MAX = 10_000;
/** The complete answer of a model server to one request: the longest text is far smaller. */
export const CHAT_ANSWER_BYTES_MAX = 16 * 1024 * 1024;
/** Specification 8: number of texts in one embeddings request, and size of the answer for all of them. */
export const EMBEDDINGS_INPUTS_MAX = 2_048;
export const EMBEDDINGS_ANSWER_BYTES_MAX = 64 * 1024 * 1024;
/** Names and values in the answer for one text: the longest vectors have some 12,000 numbers. */
export const EMBEDDING_JSON_VALUES_MAX = 16_400;
/** A tokenizer's answer to the longest request: some bytes per token. */
export const TOKENIZER_ANSWER_BYTES_MAX = 32 * 1024 * 1024;
/** Names and values in such an answer: at most twelve for each token (TEI), and a request has fewer tokens than bytes. */
export const TOKENIZER_JSON_VALUES_PER_BYTE = 12;
/** Images per request: the caller waits for all of them. */
export const IMAGES_MAX = 10;
/** Pixels of all images of a request: one of 4096x4096, or ten of 1024x1536. */
export const IMAGES_PIXELS_MAX = 16 * 1024 * 1024;
/** A server's answer with all images of a request. Noise cannot be compressed: the three bytes of a pixel are four as base64. */
export const IMAGES_ANSWER_BYTES_MAX = 4 * IMAGES_PIXELS_MAX + 2 * 1024 * 1024;
/** Size of one server-sent event: a model sends a few bytes at a time. */
export const STREAM_EVENT_BYTES_MAX = 1024 * 1024;
/** A stream is cut after this time, so that a caller that does not read cannot keep a server busy. */
export const STREAM_MS_MAX = 30 * 60_000;
/** Proxies cut connections that are silent for a minute, or sooner. */
export const STREAM_PING_MS = 15_000;
/** A caller that takes nothing of its stream for this long is cut off, because the stream keeps a place of a model server. */
export const STREAM_STALLED_MS_MAX = 60_000;
/** The same for any other answer. A caller that reads slowly may take nothing for minutes, because the network holds megabytes for it. */
export const ANSWER_STALLED_MS_MAX = 300_000;
/** Large answers that wait for callers to read them, together in one process. */
export const UNSENT_BYTES_MAX = 512 * 1_048_576;
/** Servers that one request may be tried at, while none has begun to answer. */
export const UPSTREAM_ATTEMPTS_MAX = 3;

/** Specification 8: a job that no server has begun after this time expires, and a finished video is kept for a day. */
export const VIDEO_QUEUE_MS_MAX = 2 * 3_600_000;
export const VIDEO_KEEP_MS = 24 * 3_600_000;
/** Time to download a video after its server has reported it as finished. */
export const VIDEO_FETCH_MS_MAX = 15 * 60_000;

/** Number of parts of a form. No known form has this many fields. A field may be as long as a body. */
export const FORM_PARTS_MAX = 32;
/** Bytes that a form adds to a file: delimiters, headers, and the other fields. */
export const FORM_BYTES_AROUND_MAX = 512 * 1024;

/** Uploaded files per organisation: far more than anybody trains with, and still a list that a person can search. */
export const FILES_PER_ORG_MAX = 1_000;
/** Uploads of one organisation at the same time: each may fill the disk up to the limit of a file before it is refused. */
export const UPLOADS_PER_ORG_MAX = 4;
/** Size of a file that is uploaded in parts, and of one part. Both are the limits of official clients. */
export const UPLOAD_BYTES_MAX = 8 * 1024 ** 3;
export const UPLOAD_PART_BYTES_MAX = 64 * 1024 ** 2;
/** Number of parts of a file: eight times the number that the largest file needs. */
export const UPLOAD_PARTS_MAX = 1_024;
/** Parts of one organisation that may arrive at the same time. Clients send some parts of a file side by side. */
export const UPLOAD_PARTS_AT_ONCE_MAX = 16;
/** Lifetime of an upload, which is sent to official clients. */
export const UPLOAD_MS = 3_600_000;
/** The longest name that file systems allow. */
export const FILENAME_CHARS_MAX = 255;
/** RFC 6838 allows 127 characters before and after the slash. */
export const MEDIA_TYPE_CHARS_MAX = 255;
/** The number of files that official clients request per page. */
export const FILES_PAGE_MAX = 10_000;
/** A line of a training file. A longer one is a mistake, or does not fit into the context of any model. */
export const TRAINING_LINE_BYTES_MAX = 1024 * 1024;
/** A model that gets fewer examples only memorises them. */
export const TRAINING_EXAMPLES_MIN = 10;
/** Problems of a training file that its report lists; all are counted. */
export const TRAINING_PROBLEMS_MAX = 20;

/** Removal has two phases: the container is stopped at once, and its disk is kept for this time in case the removal was a mistake. */
export const QUARANTINE_MS = 15 * 60_000;

/** Files of a job: its training data and a checkpoint to go on from. */
export const JOB_INPUTS_MAX = 4;
/** The largest file that a job reads or leaves: an upload of this size takes some hours on a slow line. */
export const JOB_FILE_BYTES_MAX = 64 * 1024 ** 3;
/** `/job/job.json`, which the control plane writes. */
export const JOB_CONFIG_CHARS_MAX = 16 * 1024;
/** Files of a result: an adapter has about ten. */
export const JOB_RESULT_FILES_MAX = 64;
/** `/job/out/result.json`: some hundred bytes for each file. */
export const JOB_MANIFEST_BYTES_MAX = 64 * 1024;
/** Names and values of a manifest, or of an event: a manifest has seven for each file. */
export const JOB_JSON_VALUES_MAX = 1_000;
/** A line of the events file. A longer one is garbage. */
export const JOB_EVENT_LINE_BYTES_MAX = 4 * 1024;
/** The part of the events file that is read: more than 100,000 lines. */
export const JOB_EVENTS_BYTES_MAX = 16 * 1024 ** 2;
/** Events in one message: below LINK_MESSAGE_BYTES_MAX and LINK_MESSAGE_VALUES_MAX for the largest ones. */
export const JOB_EVENTS_PER_MESSAGE_MAX = 100;
/** A job that was sent SIGTERM may write a checkpoint for this time, then it is killed. */
export const JOB_GRACE_MS = 60_000;
/** The longest run time that a host may report: ten years. */
export const JOB_RAN_MS_MAX = 10 * 366 * 24 * 3_600_000;

/** Specification 2.15: pairs of a job's metadata, as official clients allow them. */
export const FINE_TUNING_METADATA_MAX = 16;
/** Jobs of one organisation that may be open at once: each holds a budget, and most of them hold GPUs. */
export const FINE_TUNING_OPEN_PER_ORG_MAX = 20;
/** Events of one job. Later ones are dropped; the newest figures are in the checkpoints. */
export const FINE_TUNING_EVENTS_MAX = 10_000;
/** No job costs more. The bound keeps an amount far below what the ledger can hold. */
export const FINE_TUNING_BUDGET_USD_MAX = 1_000_000;
/** A job that found no machine fails after this time. */
export const FINE_TUNING_QUEUE_MS_MAX = 24 * 3_600_000;
/** Time from the placement until the program runs: an image and a base model may be large. */
export const FINE_TUNING_START_MS_MAX = 60 * 60_000;
/**
 * If a machine is offline for this time, its job counts as lost. A shorter time offline costs nothing, because the job continues on the
 * machine.
 */
export const FINE_TUNING_LOST_MS = 10 * 60_000;
/** If a machine is offline for this time after its job was cancelled, it is considered gone for good. */
export const FINE_TUNING_GONE_MS = 30 * 60_000;
/** Time for the upload of a result after the end of the program. */
export const FINE_TUNING_FINISH_MS_MAX = 2 * 3_600_000;
/** Machines that one job is tried on. */
export const FINE_TUNING_ATTEMPTS_MAX = 5;
/** The files of a job are kept for this time after its end. */
export const FINE_TUNING_KEEP_MS = 30 * 24 * 3_600_000;
/** How long a presigned URL of a result, an input or an upload is valid. */
export const FINE_TUNING_URL_MS = 15 * 60_000;
/** Replicas of one tier of a model. */
export const REPLICAS_MAX = 1_000;
/** Requests of one tier of a model that wait in a process for a replica to start. */
export const WAITING_REQUESTS_MAX = 256;
/** Requests of one organisation among them. A quarter is left to the others. */
export const WAITING_REQUESTS_PER_ORG_MAX = 192;
/**
 * How long a stream that waits for a replica stays silent. A failure in this time can still be answered with its own status. After this
 * time, pings are sent.
 */
export const COLD_START_SILENCE_MS = 5_000;
/**
 * Text of the statements that a connection to SQLite keeps prepared. All of the sources' fit, and some hundred lists. What SQLite makes of a text
 * takes up to 25 times its size.
 */
export const SQLITE_STATEMENTS_CHARS_MAX = 1024 * 1024;
