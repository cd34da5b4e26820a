// The page of the console: who has signed in, then the screen of the address.
import { render } from 'preact';
import { App } from './app.tsx';
import { followSignOut, loadSession } from './core/session.ts';
import { followPerson } from './core/typed.ts';

const ground = document.createElement('div');
document.body.append(ground);
render(<App />, ground);
followSignOut();
followPerson();
void loadSession();
