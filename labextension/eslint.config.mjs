import js from '@eslint/js';
import hooks from 'eslint-plugin-react-hooks';
import typescript from 'typescript-eslint';

export default typescript.config(
  { ignores: ['lib/', 'node_modules/', 'style/', '*.config.*js'] },
  js.configs.recommended,
  typescript.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true } },
    plugins: { 'react-hooks': hooks },
    rules: {
      ...hooks.configs.recommended.rules,
      // Numbers in texts are meant.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': 'off',
      // node:test gives promises that it waits for itself.
      '@typescript-eslint/no-floating-promises': [
        'error',
        { allowForKnownSafeCalls: [{ from: 'package', package: 'node:test', name: ['test'] }] }
      ],
      'no-restricted-properties': [
        'error',
        {
          property: 'innerHTML',
          message: 'Names of objects come from outside: show them as text.'
        },
        { property: 'outerHTML', message: 'Names of objects come from outside: show them as text.' }
      ],
      'no-restricted-syntax': [
        'error',
        {
          selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
          message: 'Names of objects come from outside: show them as text.'
        }
      ]
    }
  }
);
