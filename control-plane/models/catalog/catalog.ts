// The catalog: models by their ids and aliases, and what a call that names one means.
import type { Modality } from '../../../shared/api/model.ts';
import { fail } from '../../../shared/errors.ts';
import type { CatalogModel, Tier } from './models.ts';

/** What a call is answered by and priced at. */
export interface Callable extends Tier {
  model: CatalogModel;
  tier: 'serverless' | 'economy';
}

export interface Catalog {
  /** The models by id. Ask anew each time: the operator may have changed them. */
  readonly models: readonly CatalogModel[];
  /** What is called from now on; requests that are under way end as they began. */
  replace(entries: readonly CatalogModel[]): void;
  /**
   * The model of this id or alias, callable or not; the suffix `:economy` names that tier of it.
   * @throws ServiceError `model_not_found` also for a tier that it does not have
   */
  get(name: string): Callable;
  /**
   * The model that a call names by its id or an alias; the suffix `:economy` selects that tier.
   * @throws ServiceError `model_not_found` also for one of another modality, one that is coming soon, or a tier that it does not have
   */
  callable(name: string, modality: Modality): Callable;
}

/** Behind the id or an alias of a chat model: its economy tier. */
export const ECONOMY = ':economy';

export function openCatalog(entries: readonly CatalogModel[]): Catalog {
  let models: readonly CatalogModel[] = [];
  let byName = new Map<string, CatalogModel>();
  const replace = (next: readonly CatalogModel[]): void => {
    models = next.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    byName = new Map(models.flatMap((model) => [model.id, ...model.aliases].map((name) => [name, model] as const)));
  };
  replace(entries);
  const get = (name: string): Callable => {
    const isEconomy = name.endsWith(ECONOMY);
    const bare = isEconomy ? name.slice(0, -ECONOMY.length) : name;
    const model = byName.get(bare) ?? notFound(`There is no model ${quoted(bare)}`);
    if (!isEconomy) return { model, tier: 'serverless', pricing: model.pricing, upstreams: model.upstreams };
    if (model.economy === undefined) return notFound(`${model.id} has no economy tier`);
    return { model, tier: 'economy', ...model.economy };
  };
  return {
    get models() {
      return models;
    },
    replace,
    get,
    callable: (name, modality) => {
      const found = get(name);
      const { model } = found;
      if (model.modality !== modality) return notFound(`${model.id} is a model for ${model.modality}, not ${modality}`);
      if (model.status === 'coming_soon') return notFound(`${model.id} is coming soon and cannot be called yet`);
      return found;
    },
  };
}

/** A name that a stranger has sent, as much of it as helps. */
function quoted(name: string): string {
  return JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}...` : name);
}

function notFound(what: string): never {
  return fail('model_not_found', {
    detail: `${what}. GET /v1/models lists those that there are.`,
    errors: [{ field: 'model', rule: 'must be a model that can be called' }],
  });
}
