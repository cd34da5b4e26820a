// Every number that bounds something a stranger can send or make us do, with its reason.

/** Specification 2.1: list endpoints. */
export const PAGE_DEFAULT = 50;
export const PAGE_MAX = 200;
/** Specification 8. */
export const IDEMPOTENCY_KEY_CHARS_MAX = 255;
/** Keys that one API key uses in the replay window, each a row with its answer: more than two a second, day and night. */
export const IDEMPOTENCY_KEYS_PER_API_KEY_MAX = 200_000;
/** How long an equal request waits for the first one before it is told 409. */
export const IDEMPOTENCY_WAIT_MS = 2_000;
/** Promised replay window. */
export const IDEMPOTENCY_KEEP_MS = 24 * 3_600_000;
/** The largest legal body is a create request with 32 arguments and an environment; 256 KiB leaves room and starves nobody. */
export const BODY_BYTES_MAX = 256 * 1024;
/** Names and values of one JSON text: the longest conversation has 21,000. The worst text with as many is read in less than 20 ms. */
export const JSON_VALUES_MAX = 24_000;
/** The same of what a registry answers: the longest manifests have some hundred. */
export const REGISTRY_JSON_VALUES_MAX = 8_000;
/** The longest manifests and image configurations have some 100 KiB. */
export const REGISTRY_JSON_BYTES_MAX = 1024 * 1024;
/** Command and variables of a launch as JSON: what the largest body can name. Templates, which may repeat a value, get no more. */
export const LAUNCH_BYTES_MAX = 256 * 1024;
/** Path, query and headers together. */
export const HEADER_BYTES_MAX = 16 * 1024;
/** What is above this is not read to its end, so that its refusal may not know the path. */
export const HEADER_BYTES_READ_MAX = 64 * 1024;
/** API keys that are not over, of one organisation: far more than people and machines need, and a list that a person can still read. */
export const API_KEYS_PER_ORG_MAX = 200;
/** All SSH keys of an organisation may travel in one link message; at 3 KiB for the largest kind this many stay below its limit. */
export const SSH_KEYS_PER_ORG_MAX = 250;
/** Far more registries than an organisation uses, and a list that a person can still read. */
export const REGISTRY_CREDENTIALS_PER_ORG_MAX = 100;
/** The longest logins are key files of cloud providers, below 4 KiB. */
export const REGISTRY_PASSWORD_CHARS_MAX = 8 * 1024;
/** Docker's bound of a name, and as much again for registry, tag and digest. */
export const IMAGE_REFERENCE_CHARS_MAX = 512;
/** Each event is sent to every one that wants it. */
export const WEBHOOK_ENDPOINTS_PER_ORG_MAX = 50;
/** Specification 6.2 and 8: until the status line, and the whole attempt with DNS, TLS and the body. */
export const WEBHOOK_STATUS_MS_MAX = 10_000;
export const WEBHOOK_ATTEMPT_MS_MAX = 30_000;
/** Of an answer's body; the rest is not read. */
export const WEBHOOK_EXCERPT_BYTES_MAX = 1024;
/** Of one delivery, retries by hand included: its history is shown whole. */
export const WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX = 50;

/** Specification 8: instance create. */
export const GPU_COUNT_MAX = 8;
export const AUTO_TERMINATE_HOURS_MAX = 720;
export const PORTS_MAX = 10;
export const DISK_GB_MIN = 10;
export const DISK_GB_MAX = 1_000;
/** Every instance has this much without extra charge. */
export const DISK_GB_INCLUDED = 100;
/**
 * Rows that placement ranks. Transactions run one after another, so the best row is almost always the one that is taken; the rest
 * are for the rare miss, and each more costs every launch.
 */
export const CANDIDATES_MAX = 16;
/** A host that reports more than this is not believed. */
export const GPUS_PER_MACHINE_MAX = 16;
/** Machines of one supplier whose host has not enrolled: far more than anybody installs at once. */
export const MACHINES_AWAITED_MAX = 1_000;
/** Machines of one supplier, delisted ones included: a data centre has fewer. */
export const MACHINES_PER_SUPPLIER_MAX = 10_000;
/** Containers that a host is told of, those included that wait for the end of their quarantine. With more it gets no new ones. */
export const WORKLOADS_PER_MACHINE_MAX = 256;

/** The longest window of usage by its bucket, in days: at most about 1,500 buckets, and more than twenty years are a mistake. */
export const USAGE_DAYS_MAX = { hour: 62, day: 1_100, week: 7_305, month: 7_305 };

/** Specification 2.17: enrolment tokens are shown once and live a day. */
export const ENROLLMENT_TOKEN_MS = 24 * 3_600_000;

/** A passing state may last this long; then the next state follows (DESIGN section 4.2). */
export const STARTING_MS_MAX = 25 * 60_000;
export const STOPPING_MS_MAX = 5 * 60_000;

/** A pull that brings less in each minute, or is not whole by the end of the time, ends: its registry would keep GPUs from others, unpaid. */
export const PULL_BYTES_PER_SECOND_MIN = 1024 ** 2;
export const PULL_MS_MAX = 20 * 60_000;

/**
 * Our helper inside a container has this long after the container's start until it speaks: it needs a second, and what keeps it silent is
 * the image.
 */
export const GUEST_SILENT_MS_MAX = 2 * 60_000;

/**
 * The control plane ends a rental at its runtime limit; a host that is cut off does so by itself this much later, so that the two
 * never race over small differences of their clocks.
 */
export const AUTO_TERMINATE_GRACE_MS = 30_000;
/** How long a rental that cannot be reached, or whose GPU is broken, is waited for before it ends. Not charged. */
export const GRACE_MS = 30 * 60_000;

/** Link: a larger message from a host closes it. Its report on 256 workloads is smaller. */
export const LINK_MESSAGE_BYTES_MAX = 1024 * 1024;
/** The same, as names and values: twice those of its report on 256 workloads. */
export const LINK_MESSAGE_VALUES_MAX = 20_000;
/** The first message, before anyone knows who sends it: the largest inventory takes a tenth. */
export const LINK_HELLO_BYTES_MAX = 64 * 1024;
/** Bytes of first messages from one address without a proof in them: at once, and in each second after that. */
export const LINK_UNPROVEN_BYTES_BURST = 32 * LINK_HELLO_BYTES_MAX;
export const LINK_UNPROVEN_BYTES_PER_SECOND = 2 * LINK_HELLO_BYTES_MAX;
/** Bytes of messages of one host that are read: at once, and in each second after that. An honest one sends some KiB in a minute. */
export const LINK_READ_BYTES_BURST = 16 * LINK_MESSAGE_BYTES_MAX;
export const LINK_READ_BYTES_PER_SECOND = 1024 * 1024;
/** The same for what a host is sent: the largest launch that there is on each of its GPUs, and as much again as above for the rest. */
export const LINK_DESIRED_BYTES_MAX = LINK_MESSAGE_BYTES_MAX + GPUS_PER_MACHINE_MAX * LAUNCH_BYTES_MAX;
/** What a host has not read yet of what it was sent; with more its link ends, and it reads its state anew when it is back. */
export const LINK_UNSENT_BYTES_MAX = 8 * 1024 * 1024;
export const LINK_PING_MS = 10_000;
/** A ping that is not answered by then is missed: what runs on the host is looked at. */
export const LINK_PONG_MS_MAX = 4_000;
/** Three missed pings: the peer is gone even if TCP has not noticed. */
export const LINK_SILENCE_MS_MAX = 35_000;
/** A copy of a host's disk that is older than that is told from the host when it links. */
export const CLONE_TOKEN_MS = 60_000;
export const LINK_RECONNECT_MS_MIN = 500;
export const LINK_RECONNECT_MS_MAX = 15_000;
/** The agent's own authentication must be over by then. */
export const LINK_HELLO_MS_MAX = 10_000;

/** A holder that was asked for a stream has this long to dial it. */
export const STREAM_DIAL_MS_MAX = 10_000;
/** After both directions of a stream have ended, its connection has this long to close. */
export const STREAM_CLOSE_MS_MAX = 10_000;

/** Peers of idle connections are asked by TCP whether they are still there: a host that lost its power says nothing. */
export const TCP_KEEP_ALIVE_MS = 60_000;

/** SSH endpoint guards (research: a public SSH server without these can be emptied of memory or sockets). */
export const SSH_LOGIN_GRACE_MS = 20_000;
export const SSH_UNAUTHENTICATED_MAX = 10;
/** A caller for whom there is no place yet waits so long. */
export const SSH_QUEUE_MS_MAX = 10_000;
/** An honest client on a slow line has logged in by then; after it, whoever waits may take its place. */
export const SSH_LOGIN_FAIR_MS = 5_000;
/** A connection that is older than this has logged in: the holder has ended all others. */
export const SSH_LOGIN_MS_MAX = SSH_QUEUE_MS_MAX + SSH_LOGIN_GRACE_MS + 5_000;
/** Logins of the control plane at the same time: one, and one that is being replaced. */
export const SSH_PROBES_MAX = 2;
export const SSH_AUTH_TRIES_MAX = 3;
/** Offers of keys without a signature: an ssh-agent with many keys offers them all before the right one, and each costs us a comparison. */
export const SSH_KEY_OFFERS_MAX = 30;
/** Of those that log in at the same time, so many may come from one address: whoever never does must not keep all others waiting. */
export const SSH_UNAUTHENTICATED_PER_ADDRESS_MAX = 5;
/** Answers of one connection that its client has not taken yet; above it, what the client says is not read either. */
export const SSH_UNSENT_BYTES_HIGH = 2 * 1024 * 1024;
/** Bytes that wait in all connections of one holder, for the container or for their clients; the largest is cut above it. */
export const SSH_BUFFERED_BYTES_MAX = 128 * 1024 ** 2;
export const SSH_CHANNELS_MAX = 64;
export const SSH_CONNECTIONS_MAX = 128;
/** Of those to one public port of an instance; with all of them nobody else would get in. */
export const PORT_CONNECTIONS_PER_ADDRESS_MAX = 64;

/** Connections of one address to the API, and as many to applications: an office full of browsers needs fewer. */
export const HTTP_CONNECTIONS_PER_ADDRESS_MAX = 1_024;

/** What a client has said to its end still reaches a program that is slow to take it, for so long after the client has left. */
export const SESSION_LINGER_MS = 30_000;

/** Lines of a container's log in one answer; the engine keeps 30 MB of it. */
export const LOG_LINES_DEFAULT = 100;
export const LOG_LINES_MAX = 1_000;
/** A host sends so many lines in less than a second; one that never ends its answer must not hold a request. */
export const LOG_READ_MS_MAX = 30_000;
/** Logs that one organisation follows at the same time: each holds a connection here and one on the host. */
export const LOG_FOLLOWERS_PER_ORG_MAX = 20;

/**
 * Frames that a holder takes from all that runs in its container, per second: a small one costs it some ten microseconds, and honest ones
 * carry kilobytes. Words, which are checked one by one, count as ten.
 */
export const GUEST_FRAMES_PER_SECOND_MAX = 20_000;
/** Bytes of the same: more than any network of a rental carries. */
export const GUEST_BYTES_PER_SECOND_MAX = 1024 ** 3;

/** Connections to the ports of one instance, browsers' and others' together. */
export const TCP_CONNECTIONS_MAX = 512;

/** The body of a request to a model: a million tokens of English. To read more would hold up everyone else for more than 20 ms. */
export const INFERENCE_BODY_BYTES_MAX = 4 * 1024 * 1024;
/** Messages of one conversation; each costs the template some tokens beside its text. */
export const CHAT_MESSAGES_MAX = 2_048;
/** The answer of a model server to one request, whole: the longest text is far below it. */
export const CHAT_ANSWER_BYTES_MAX = 16 * 1024 * 1024;
/** Specification 8: texts of one embeddings request, and what servers answer with for all of them. */
export const EMBEDDINGS_INPUTS_MAX = 2_048;
export const EMBEDDINGS_ANSWER_BYTES_MAX = 64 * 1024 * 1024;
/** What a tokenizer answers for the longest request, some bytes for each token of it. */
export const TOKENIZER_ANSWER_BYTES_MAX = 32 * 1024 * 1024;
/** Images of one request: a caller waits for all of them. */
export const IMAGES_MAX = 10;
/** What a server answers with for all of them. */
export const IMAGES_ANSWER_BYTES_MAX = 64 * 1024 * 1024;
/** Of one server-sent event: a model says a few bytes at a time. */
export const STREAM_EVENT_BYTES_MAX = 1024 * 1024;
/** A stream is cut off then: a caller that does not read keeps a server busy no longer. */
export const STREAM_MS_MAX = 30 * 60_000;
/** Proxies cut connections that are silent for a minute, or sooner. */
export const STREAM_PING_MS = 15_000;
/** Servers that one request may be sent to, before any of them has begun to answer it. */
export const UPSTREAM_ATTEMPTS_MAX = 3;

/** Specification 8: a job that no server has begun with by then expires, and a finished video is kept so long. */
export const VIDEO_QUEUE_MS_MAX = 2 * 3_600_000;
export const VIDEO_KEEP_MS = 24 * 3_600_000;
/** From the moment at which a server says that a video is finished until the whole of it is here. */
export const VIDEO_FETCH_MS_MAX = 15 * 60_000;

/** No form that we know has as many fields. A field may be as long as a body. */
export const FORM_PARTS_MAX = 32;
/** What a form around a file adds to its length: delimiters, headers, and the fields. */
export const FORM_BYTES_AROUND_MAX = 512 * 1024;

/** Uploaded files of one organisation: far more than anybody trains with, and a list that a person can still search. */
export const FILES_PER_ORG_MAX = 1_000;
/** Uploads of one organisation at the same time: each may fill the disk up to the limit of a file before it is refused. */
export const UPLOADS_PER_ORG_MAX = 4;
/** The longest name that file systems take. */
export const FILENAME_CHARS_MAX = 255;
/** Official clients ask for as many files on a page. */
export const FILES_PAGE_MAX = 10_000;
/** Of a training file: one that is longer is a mistake, or would not fit into the context of any model. */
export const TRAINING_LINE_BYTES_MAX = 1024 * 1024;
/** With fewer a model learns nothing but these. */
export const TRAINING_EXAMPLES_MIN = 10;
/** Problems of a training file that its report lists; all are counted. */
export const TRAINING_PROBLEMS_MAX = 20;

/** Removal is two-phase: the container is stopped at once, its disk is kept this long in case we were wrong. */
export const QUARANTINE_MS = 15 * 60_000;
