// Makes a copy of an image without the volumes that it declares, so that all writes of a container count against its disk size.
// Neither a Dockerfile nor the Engine's API can remove a VOLUME. But an image is only a list of layers with a configuration, so the
// copy lists the same layers with a changed configuration.
import { tarOf } from './tar.ts';

/** The parts of an image's description that the copy needs. */
export interface LayeredImage {
  Id: string;
  Architecture: string;
  Os: string;
  Config: { Volumes?: Record<string, unknown> | null };
  RootFS: { Layers?: string[] | undefined };
}

export interface Volumeless {
  /** Depends on the original image alone. */
  tag: string;
  /** Archive for the engine to load. It contains no layers, because the engine has them already and finds them by digest. */
  archive: Buffer;
  /** The mount points of the volumes, which need not exist in the image, each with an archive that creates the folder. */
  folders: { path: string; archive: Buffer }[];
}

/** The tag of the copy; `imageId` is the engine's id of the original. */
export function tagWithoutVolumes(imageId: string): string {
  return `svc-without-volumes:${imageId.replace('sha256:', '')}`;
}

/** Undefined if the image declares no volume. */
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
