// A row of a few words, of which exactly one is selected.
import { useId } from 'preact/hooks';

interface SegmentsProps<T extends string> {
  /** Name of the choice, for people who do not see the row. */
  label: string;
  value: T;
  options: readonly (readonly [value: T, label: string])[];
  onValue(value: T): void;
}

export function Segments<T extends string>({ label, value, options, onValue }: SegmentsProps<T>) {
  const name = useId();
  return (
    <span class="seg" role="radiogroup" aria-label={label}>
      {options.map(([each, text]) => (
        <label key={each}>
          <input type="radio" name={name} checked={value === each} onChange={() => onValue(each)} />
          {text}
        </label>
      ))}
    </span>
  );
}
