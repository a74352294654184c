// Draws one dashboard, in the theme that the address names, and then says what is wrong with the picture.
import { Component, StrictMode, type ReactElement, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTimeFormat, EventBusSrv, ThemeContext, type DataFrame, type GrafanaTheme2 } from '@grafana/data';
import { GlobalStyles, Icon, PanelChrome, PanelContextProvider } from '@grafana/ui';
import { prepared } from './fields';
import { cut, listen, wrong } from './judge';
import type { Board, Drawn, Panel } from './model';
import { Inside, Nothing } from './panels';

declare global {
  interface Window {
    // Set when all is drawn; draw.py waits for it.
    drawn?: { wrong: Array<[string, string]>; cut: Array<[string, string]>; panels: number };
  }
}

// Grafana's grid: 24 columns, 30 pixels and a gap of 8 for each unit of height.
const GAP = 8;
const UNIT = 30;
const high = (units: number) => units * UNIT + (units - 1) * GAP;

interface Ready {
  drawn: Drawn;
  frames: DataFrame[];
  error?: string;
}

class Caught extends Component<{ children: ReactNode }, { error?: Error }> {
  override state: { error?: Error } = {};
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  override render() {
    return this.state.error ? <div data-thrown>{String(this.state.error)}</div> : this.props.children;
  }
}

function Row({ panel }: { panel: Panel }): ReactElement {
  return (
    <div style={{ height: UNIT, display: 'flex', alignItems: 'center', gap: 8, fontSize: 16, fontWeight: 500 }}>
      <Icon name="angle-down" /> {panel.title}
    </div>
  );
}

function One({ ready, board, theme, width }: { ready: Ready; board: Board; theme: GrafanaTheme2; width: number }): ReactElement {
  const { panel, skipped } = ready.drawn;
  const height = high(panel.gridPos.h);
  return (
    <Caught>
      <PanelChrome width={width} height={height} title={panel.title} description={panel.description}>
        {(innerWidth, innerHeight) => (
          <div data-inside {...(panel.type === 'stat' ? { 'data-stat': '' } : {})}>
            <Caught>
              {ready.error ? (
                <div data-thrown>{ready.error}</div>
              ) : skipped ? (
                <Nothing text={skipped} height={innerHeight} />
              ) : (
                <Inside {...board} panel={panel} frames={ready.frames} theme={theme} width={innerWidth} height={innerHeight} />
              )}
            </Caught>
          </div>
        )}
      </PanelChrome>
    </Caught>
  );
}

function Page({ board, all, theme }: { board: Board; all: Ready[]; theme: GrafanaTheme2 }): ReactElement {
  const wide = document.documentElement.clientWidth - 2 * GAP * 2;
  const column = (wide + GAP) / 24;
  const time = (t: number) => dateTimeFormat(t, { timeZone: 'utc', format: 'YYYY-MM-DD HH:mm:ss' });
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventsScope: 'global', eventBus: new EventBusSrv() }}>
        <div style={{ padding: 2 * GAP, overflow: 'hidden', background: theme.colors.background.canvas, color: theme.colors.text.primary }}>
          <header style={{ height: 64 }}>
            <h1 style={{ fontSize: 20, margin: 0 }}>{board.title}</h1>
            <div style={{ color: theme.colors.text.secondary, display: 'flex', gap: 24, marginTop: 6 }}>
              {board.variables.map((v) => (
                <span key={v.label}>
                  {v.label}: <b>{v.text}</b>
                </span>
              ))}
              <span style={{ marginLeft: 'auto' }}>
                {time(board.from)} to {time(board.to)} UTC
              </span>
            </div>
          </header>
          <main style={{ position: 'relative', height: Math.max(...all.map((r) => (r.drawn.panel.gridPos.y + r.drawn.panel.gridPos.h) * (UNIT + GAP))) }}>
            {all.map((r) => {
              const { panel } = r.drawn;
              const { x, y, w } = panel.gridPos;
              const style = { position: 'absolute' as const, left: x * column, top: y * (UNIT + GAP), width: w * column - GAP };
              return (
                <section key={panel.id} data-panel={panel.id} style={style}>
                  {panel.type === 'row' ? <Row panel={panel} /> : <One ready={r} board={board} theme={theme} width={style.width} />}
                </section>
              );
            })}
          </main>
        </div>
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
}

/** Resolves when nothing has changed for a while: icons and sizes come after the first drawing. */
function quiet(milliseconds: number): Promise<void> {
  return new Promise((done) => {
    let timer = setTimeout(end, milliseconds);
    const seen = new MutationObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(end, milliseconds);
    });
    seen.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    function end() {
      seen.disconnect();
      done();
    }
  });
}

async function main(): Promise<void> {
  listen();
  const asked = new URLSearchParams(location.search);
  const theme = createTheme({ colors: { mode: asked.get('theme') === 'light' ? 'light' : 'dark' } });
  const board: Board = await (await fetch(asked.get('board')!)).json();
  document.title = board.title;
  await Promise.all(['400 14px Inter', '500 14px Inter'].map((f) => document.fonts.load(f)));
  const all = await Promise.all(
    board.panels.map(async (drawn): Promise<Ready> => {
      try {
        return { drawn, frames: drawn.panel.type === 'row' ? [] : await prepared(drawn, theme) };
      } catch (e) {
        return { drawn, frames: [], error: String(e) };
      }
    })
  );
  createRoot(document.getElementById('page')!).render(
    <StrictMode>
      <Page board={board} all={all} theme={theme} />
    </StrictMode>
  );
  await quiet(700);
  const found: NonNullable<Window['drawn']> = { wrong: [], cut: [], panels: 0 };
  for (const { drawn, frames } of all) {
    if (drawn.panel.type === 'row') {
      continue;
    }
    found.panels += 1;
    const at = document.querySelector(`[data-panel="${drawn.panel.id}"]`)!;
    found.wrong.push(...[...wrong(at, drawn.panel, frames, board, theme)].map((w): [string, string] => [drawn.panel.title, w]));
    found.cut.push(...[...new Set(cut(at))].map((w): [string, string] => [drawn.panel.title, w]));
  }
  window.drawn = found;
}

void main();
