// The page of the console: who has signed in, then the screen of the address.
import { render } from 'preact';
import { App } from './app.tsx';
import { loadSession } from './core/session.ts';

const ground = document.createElement('div');
document.body.append(ground);
render(<App />, ground);
void loadSession();
