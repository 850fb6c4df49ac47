# usage: .t-ab.sh jobs reps -> prints per-job median rate and node/ev
bash .t-run.sh "$1" "$2" | awk '{r[$1]=r[$1]" "$2; n[$1]=n[$1]" "$4} function med(s,  a,c){c=split(s,a," "); {for(i=1;i<=c;i++)for(k=i+1;k<=c;k++)if(a[k]+0<a[i]+0){t=a[i];a[i]=a[k];a[k]=t}}; return a[int((c+1)/2)]} END{for(j in r) print j, med(r[j]), "node", med(n[j]), "   (" r[j] ")"}'
