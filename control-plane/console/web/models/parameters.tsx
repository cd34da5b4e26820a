// Fields for the parameters of an image or a video that the model lists.
import type { Model } from '../../../../shared/api/model.ts';
import { capital } from '../core/format.ts';
import { type Action, Field, Select } from '../parts/forms.tsx';

type Parameter = NonNullable<Model['parameters']>[number];
export type Values = Readonly<Record<string, string>>;

interface ParameterFieldsProps {
  parameters: readonly Parameter[];
  values: Values;
  onValues(values: Values): void;
  action: Action;
}

/** A field that is left empty is not sent: the model's own value counts. */
export function ParameterFields({ parameters, values, onValues, action }: ParameterFieldsProps) {
  return (
    <div class="grid">
      {parameters.map((parameter) => {
        const { name, type, min, max } = parameter;
        const given = { label: labelOf(parameter), value: values[name] ?? '', rule: action.ruleOf(name) };
        const onValue = (value: string): void => onValues({ ...values, [name]: value });
        const options = optionsOf(parameter);
        if (options !== undefined) return <Select key={name} {...given} options={options} onValue={onValue} />;
        const bounds = { ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) };
        return (
          <Field
            key={name}
            {...given}
            {...(type === 'int' ? { type: 'number', ...bounds } : {})}
            placeholder={parameter.default === undefined ? '' : String(parameter.default)}
            onValue={onValue}
          />
        );
      })}
    </div>
  );
}

/** The members of the request. An empty field gives no member. */
export function membersOf(parameters: readonly Parameter[], values: Values): Record<string, string | number | boolean> {
  return Object.fromEntries(
    parameters.flatMap(({ name, type }): [string, string | number | boolean][] => {
      const value = values[name] ?? '';
      if (value === '') return [];
      if (type === 'int') return [[name, Number(value)]];
      return [[name, type === 'bool' ? value === 'true' : value]];
    }),
  );
}

function labelOf({ name, min, max }: Parameter): string {
  const words = capital(name);
  return min === undefined || max === undefined ? words : `${words}, ${min} to ${max}`;
}

function optionsOf({ type, enum: values, default: usual }: Parameter): (readonly [string, string])[] | undefined {
  const given = type === 'bool' ? ['true', 'false'] : values;
  if (given === undefined) return undefined;
  return [
    ['', usual === undefined ? 'of the model' : `${String(usual)}, of the model`],
    ...given.map((each) => [each, each] as const),
  ];
}
