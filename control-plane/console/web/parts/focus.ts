// The focus of the keyboard. A browser drops it when the focused element is disabled or leaves the page, and the person would begin at the top.

/** Remembers where the focus is. The returned function, called when something has ended, gives it back if it was lost meanwhile. */
export function holdFocus(): () => void {
  const before = document.activeElement;
  const list = before?.closest('.scroll');
  const isInDialog = before?.closest('dialog') !== null;
  return () => {
    // The page is drawn first: it may enable the element again, or remove it.
    setTimeout(() => {
      if (before === document.body || !isLost()) return;
      if (before?.isConnected === true) focusOn(before);
      // A dialog that is gone gives the focus back by itself.
      else if (!isInDialog) focusOn(list?.isConnected === true ? list : headingOf());
    });
  };
}

function isLost(): boolean {
  return document.activeElement === null || document.activeElement === document.body;
}

function headingOf(): Element | null {
  const heading = document.querySelector('main h1') ?? document.querySelector('main');
  heading?.setAttribute('tabindex', '-1');
  return heading;
}

function focusOn(element: Element | null): void {
  if (element instanceof HTMLElement) element.focus({ preventScroll: true });
}
