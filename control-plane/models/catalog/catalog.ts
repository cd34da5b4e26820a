// The catalog: finds the model and the tier that a call names, by id or alias.
import type { Modality } from '../../../shared/api/model.ts';
import { fail } from '../../../shared/errors.ts';
import type { CatalogModel, Tier } from './models.ts';

/** A model and the tier of a call, with its price and servers. */
export interface Callable extends Tier {
  model: CatalogModel;
  tier: 'serverless' | 'economy';
}

export interface Catalog {
  /** The models by id. Read it anew each time, because the operator may change the file. */
  readonly models: readonly CatalogModel[];
  /** Replaces the models. Requests in progress keep the model that they began with. */
  replace(entries: readonly CatalogModel[]): void;
  /**
   * The model with this id or alias, callable or not. The suffix `:economy` selects the economy tier.
   * @throws ServiceError `model_not_found`, also for a tier that the model does not have
   */
  get(name: string): Callable;
  /**
   * The callable model with this id or alias. The suffix `:economy` selects the economy tier.
   * @throws ServiceError `model_not_found`, also if the model has another modality, is coming soon, or does not have the tier
   */
  callable(name: string, modality: Modality): Callable;
}

/** The suffix of an id or alias that selects the economy tier. */
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
    const { pricing, upstreams, deployment } = model;
    if (!isEconomy) return { model, tier: 'serverless', pricing, upstreams, deployment };
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

/** Shortens and quotes a name that a stranger has sent. */
function quoted(name: string): string {
  return JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}...` : name);
}

function notFound(what: string): never {
  return fail('model_not_found', {
    detail: `${what}. GET /v1/models lists those that there are.`,
    errors: [{ field: 'model', rule: 'must be a model that can be called' }],
  });
}
