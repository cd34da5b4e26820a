// The services outside of this process that rooms use: mail, webhooks, image registries, the model hub, and the store of files.
import type { Clock } from '../shared/clock.ts';
import type { Blobs } from './base/blobs/blobs.ts';
import { openDiskBlobs } from './base/blobs/local-disk.ts';
import { type PresignedUrls, openPresignedUrls } from './base/blobs/presigned-urls.ts';
import { openS3Blobs } from './base/blobs/s3.ts';
import { openUrlKeys, type UrlKeys } from './base/blobs/url-keys.ts';
import { openMail } from './base/mail/mail.ts';
import { openOutbound, type Outbound } from './base/outbound/outbound.ts';
import { blobsDirectory, type Config } from './config.ts';
import type { Stores } from './operator-files.ts';
import { openImages } from './rental/launch/images.ts';
import { openModelHub } from './rental/launch/model-hub.ts';
import type { PrivateRegistry } from './rental/launch/registry.ts';
import type { Core } from './settings.ts';

const GIB = 1024 ** 3;

/** The services outside of this process that rooms use, except hosts. */
export function openServices(config: Config, { secret, mail, s3 }: Stores & { secret: Buffer }, core: Core) {
  return {
    mail: openMail(mail, core),
    webhookOutbound: openWebhookOutbound(config, core.clock),
    images: openImages(privateRegistriesOf(config), core),
    modelHub: openModelHub(config.model_hub_url, core),
    storage: openStorage(config, { secret, s3 }, core),
  };
}

function openStorage(
  config: Config,
  { secret, s3 }: Pick<Stores, 's3'> & { secret: Buffer },
  core: Core,
): { blobs: Blobs; presignedUrls: PresignedUrls; urlKeys: UrlKeys } {
  const { percent, gib } = config.disk_reserve;
  const reserve = { share: percent / 100, bytes: gib * GIB };
  const urlKeys = openUrlKeys(core);
  const presignedUrls = openPresignedUrls({ secret, baseUrl: config.base_url, keys: urlKeys });
  const blobs =
    s3 === undefined
      ? openDiskBlobs(blobsDirectory(config), { ...core, reserve, presignedUrls })
      : openS3Blobs(s3, core);
  return { blobs, presignedUrls, urlKeys };
}

function openWebhookOutbound({ webhooks }: Config, clock: Clock): Outbound {
  const privateNetworks = webhooks.allowed_networks;
  return openOutbound({ ports: webhooks.allowed_ports, privateNetworks, namedHosts: [] }, { clock });
}

function privateRegistriesOf({ images }: Config): PrivateRegistry[] {
  return images.private_registries.map((registry) => ({ host: registry.host, plainHttp: registry.plain_http }));
}
