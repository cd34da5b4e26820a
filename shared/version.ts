// The version that both programs say they are: the one in package.json.
import manifest from '../package.json' with { type: 'json' };

export const VERSION: string = manifest.version;
