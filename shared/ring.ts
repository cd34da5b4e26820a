// Things that come and go, like open requests and connections. A Set or a Map would keep what has left it: each of its tables refers to the next
// one, so one dead table among the old objects makes the garbage collector keep all later tables, with all that was in them.

/** Things in the order in which they came. */
export interface Ring<T> {
  readonly size: number;
  /** The returned function takes the thing out again. */
  add(thing: T): () => void;
  oldest(): T | undefined;
  list(): T[];
}

interface Place<T> {
  thing: T | undefined;
  before: Place<T> | undefined;
  after: Place<T> | undefined;
}

export function openRing<T extends object>(): Ring<T> {
  let first: Place<T> | undefined;
  let last: Place<T> | undefined;
  let size = 0;
  const remove = (place: Place<T>): void => {
    if (place.thing === undefined) return;
    if (place.before === undefined) first = place.after;
    else place.before.after = place.after;
    if (place.after === undefined) last = place.before;
    else place.after.before = place.before;
    // A place that has left refers to nothing, so it keeps nothing alive.
    place.thing = undefined;
    place.before = undefined;
    place.after = undefined;
    size -= 1;
  };
  return {
    get size() {
      return size;
    },
    add: (thing) => {
      const place: Place<T> = { thing, before: last, after: undefined };
      if (last === undefined) first = place;
      else last.after = place;
      last = place;
      size += 1;
      return () => remove(place);
    },
    oldest: () => first?.thing,
    list: () => {
      const things: T[] = [];
      for (let place = first; place?.thing !== undefined; place = place.after) things.push(place.thing);
      return things;
    },
  };
}
