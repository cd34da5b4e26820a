// What chooses the rows of a table: a row of a few words, and a field for words to find.
import { useId } from 'preact/hooks';

interface SegmentsProps<T extends string> {
  /** Name of the choice, for people who do not see the row. */
  label: string;
  value: T;
  options: readonly (readonly [value: T, label: string])[];
  onValue(value: T): void;
}

/** A row of a few words, of which exactly one is selected. */
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

interface FindProps {
  /** Name of the field, for people who do not see it. */
  label: string;
  /** What can be found. It stands in the empty field. */
  placeholder: string;
  value: string;
  onValue(value: string): void;
}

export function Find({ label, placeholder, value, onValue }: FindProps) {
  return (
    <label class="find">
      <span class="sr">{label}</span>
      <input
        type="search"
        placeholder={placeholder}
        value={value}
        onInput={(event) => onValue(event.currentTarget.value)}
      />
    </label>
  );
}
