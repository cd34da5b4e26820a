// What this room brings to the house.
import type { Files } from './files.ts';
import { fileRoutes } from './routes.ts';

export function filesBrings({ files }: { files: Files }) {
  return { routes: fileRoutes({ files }) };
}
