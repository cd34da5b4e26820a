// Reads the parameters of a video request as its model declares them. Pure.
import { fail, failField } from '../../../shared/errors.ts';
import type { CatalogModel } from '../catalog/models.ts';
import { brokenRule, type ParameterValue } from '../catalog/video-parameters.ts';

export interface Given {
  /** The fields of the body without model and prompt. */
  members: Record<string, unknown>;
  /** True if the fields are texts of a form. */
  isForm: boolean;
}

/**
 * The values of all parameters: from the request, otherwise the default of the model.
 * @throws ServiceError `invalid_request` for a parameter that the model does not declare, `validation_failed` for a wrong value
 */
export function readParameters({ members, isForm }: Given, model: CatalogModel): Record<string, ParameterValue> {
  const { parameters } = model;
  for (const name of Object.keys(members)) {
    if (!parameters.some((parameter) => parameter.name === name)) refuseUndeclared(name, model);
  }
  const values: Record<string, ParameterValue> = {};
  for (const parameter of parameters) {
    const { name, default: standard } = parameter;
    const sent = Object.hasOwn(members, name) ? members[name] : null;
    // In a form, null stands for a file, which is not a valid value.
    const isMissing = sent === null && !(isForm && Object.hasOwn(members, name));
    if (isMissing) {
      if (standard !== undefined) values[name] = standard;
      continue;
    }
    const value = isForm ? typed(parameter.type, sent) : sent;
    const rule = brokenRule(parameter, value);
    if (rule !== undefined) failField(name, `${rule} for ${model.id}`);
    values[name] = value as ParameterValue;
  }
  return values;
}

/** Converts a text to the type of its parameter; unchanged if that is not possible. */
function typed(type: string, text: unknown): unknown {
  if (typeof text !== 'string') return text;
  if (type === 'int') return /^-?[0-9]{1,15}$/.test(text) ? Number(text) : text;
  if (type === 'bool') return text === 'true' ? true : text === 'false' ? false : text;
  return text;
}

function refuseUndeclared(name: string, { id, parameters }: CatalogModel): never {
  const declared = parameters.map((parameter) => parameter.name).join(', ');
  return fail('invalid_request', {
    detail: `${name} is no parameter of ${id}, which takes ${declared}. Leave it out.`,
    errors: [{ field: name, rule: 'is not a parameter of the model' }],
  });
}
