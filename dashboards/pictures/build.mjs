// Bundles the page into dist/. What is loaded on demand stays in files of its own, most of which are never asked for.
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { build } from 'esbuild';

rmSync('dist', { recursive: true, force: true });
await build({
  entryPoints: ['src/page.tsx'],
  outdir: 'dist',
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  // Editors and maps belong to the packages, but no panel has them.
  external: ['monaco-editor', 'ol', 'ol/*'],
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'dataurl', '.woff': 'file', '.woff2': 'file' },
  logLevel: 'warning',
});
cpSync('page.html', 'dist/page.html');
// Icons are read from here while the page runs.
mkdirSync('dist/public/build', { recursive: true });
cpSync('node_modules/@grafana/ui/dist/public', 'dist/public/build', { recursive: true });
// The font is not in Grafana's packages; its styles look for it here.
mkdirSync('dist/public/fonts/inter', { recursive: true });
for (const [weight, name] of [[400, 'Regular'], [500, 'Medium']]) {
  cpSync(`node_modules/@fontsource/inter/files/inter-latin-${weight}-normal.woff2`, `dist/public/fonts/inter/Inter-${name}.woff2`);
}
