// An image without the volumes that it declares: what a container writes there is held to the size of its disk like everything else.
// Neither the Dockerfile nor the Engine's API can take a VOLUME back, but an image is only a list of layers with a configuration.
import { tarOf } from './tar.ts';

/** What the engine says about an image, as far as another one is made of it. */
export interface LayeredImage {
  Id: string;
  Architecture: string;
  Os: string;
  Config: { Volumes?: Record<string, unknown> | null };
  RootFS: { Layers?: string[] | undefined };
}

export interface Volumeless {
  /** The same for the same image. */
  tag: string;
  /** For the engine to load: no layer is in it, since the engine has them all and looks for them by their digests. */
  archive: Buffer;
  /** Where the image wants volumes: folders that need not exist in it, each with an archive that makes it below the root. */
  folders: { path: string; archive: Buffer }[];
}

/** `imageId` is the engine's for the image with its volumes. */
export function tagWithoutVolumes(imageId: string): string {
  return `svc-without-volumes:${imageId.replace('sha256:', '')}`;
}

/** Undefined where the image declares no volume. */
export function withoutVolumes({ Id, Architecture, Os, Config, RootFS }: LayeredImage): Volumeless | undefined {
  const { Volumes, ...config } = Config;
  const paths = Object.keys(Volumes ?? {});
  if (paths.length === 0) return undefined;
  const layers = RootFS.Layers ?? [];
  const image = {
    architecture: Architecture,
    os: Os,
    config,
    rootfs: { type: 'layers', diff_ids: layers },
  };
  const tag = tagWithoutVolumes(Id);
  const manifest = [{ Config: 'config.json', RepoTags: [tag], Layers: layers.map((_, i) => `${i}.tar`) }];
  const archive = tarOf([
    { name: 'manifest.json', content: JSON.stringify(manifest) },
    { name: 'config.json', content: JSON.stringify(image) },
  ]);
  const folders = paths.map((path) => ({ path, archive: tarOf([{ name: `${path.replace(/^\/+/, '')}/` }]) }));
  return { tag, archive, folders };
}
