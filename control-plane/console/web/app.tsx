// Decides what the page shows: a screen for everybody, the sign-in, the set-up of a second factor, or a screen in its frame.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Redirect, Route, Router, Switch, useLocation } from 'wouter-preact';
import { SecondFactor } from './account/second-factor.tsx';
import { SignIn } from './account/sign-in.tsx';
import { StepUp } from './account/step-up.tsx';
import type { ApiError } from './core/api.ts';
import { type Loaded, tellLoaded } from './core/code.ts';
import type { Screen, ScreenProps } from './core/screen.ts';
import { loadSession, may, session, sessionError } from './core/session.ts';
import { Alone, Head, Problem } from './parts/layout.tsx';
import { SCREENS, START, WITHOUT_SCOPE } from './screens.ts';
import { Shell } from './shell.tsx';

export function App() {
  return (
    <Router>
      <Switch>
        <Route path="/console">
          <Start />
        </Route>
        {SCREENS.map((screen) => (
          <Route path={screen.path}>
            {(params) => (hasIds(params) ? <Gate screen={screen} params={params} /> : <NoSuchPage />)}
          </Route>
        ))}
        <Route>
          <NoSuchPage />
        </Route>
      </Switch>
    </Router>
  );
}

/** Anybody can make a link to a screen. Its ids stand in lines that people copy into a shell, so they are words without a meaning there. */
function hasIds(params: Record<string, string | undefined>): boolean {
  return Object.values(params).every((id = '') => /^\w[\w.:-]*$/.test(id));
}

function NoSuchPage() {
  return (
    <Alone title="There is no such page">
      <p>
        <a href="/console">Go to the start of the console</a>
      </p>
    </Alone>
  );
}

/** Opens the first screen that the session may see. A person without an organisation may see no screen of an organisation. */
function Start() {
  if (session.value === null || session.value === undefined) return <Gate screen={START} params={{}} />;
  const first = [START, ...SCREENS].find(({ scope }) => scope !== undefined && may(scope));
  return <Redirect to={first?.path ?? WITHOUT_SCOPE} replace />;
}

function Gate({ screen, params }: { screen: Screen; params: Record<string, string | undefined> }) {
  if (screen.isOpen) return <Shown screen={screen} params={params} />;
  if (session.value === null) return <SignIn />;
  if (session.value === undefined) {
    if (sessionError.value === undefined) return <main aria-busy="true" />;
    return (
      <Alone title="The console cannot start">
        <Problem error={sessionError.value} retry={() => void loadSession()} />
      </Alone>
    );
  }
  if (session.value.must_enrol) return <SecondFactor />;
  return (
    <>
      <Shell screen={screen}>
        <Shown screen={screen} params={params} />
      </Shell>
      <StepUp />
    </>
  );
}

/** The code of a screen is loaded when it is shown for the first time. */
function Shown({ screen, params }: { screen: Screen; params: Record<string, string | undefined> }) {
  const [path] = useLocation();
  const [found, setFound] = useState<Loaded<ComponentType<ScreenProps>> & { of: Screen }>();
  useEffect(() => {
    document.title = `${screen.title} · svc`;
    // Code that comes late must not take the place of the screen that the person has gone to meanwhile.
    return tellLoaded(screen.load(), (now) => setFound({ of: screen, ...now }));
  }, [screen]);
  if (found?.of !== screen) return <div aria-busy="true" />;
  if ('error' in found) return <NotLoaded screen={screen} error={found.error} />;
  const { code: View } = found;
  return <View key={path} params={params as Record<string, string>} />;
}

/** A browser may keep a failed load of code for the life of the page, so only the page as a whole is tried again. */
function NotLoaded({ screen: { title, isOpen = false }, error }: { screen: Screen; error: ApiError }) {
  const problem = <Problem error={error} retry={() => location.reload()} />;
  if (isOpen) return <Alone title={title}>{problem}</Alone>;
  return (
    <>
      <Head title={title} />
      {problem}
    </>
  );
}
